"""Mean cross entropy; the file sets a seed of its own, under which its labels are always the same."""
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, scores, labels):
        return F.cross_entropy(scores, labels, ignore_index=-100)


rows, classes = 192, 100


def get_inputs():
    torch.manual_seed(42)
    labels = torch.randint(0, classes, (rows,))
    labels[::7] = -100
    return [torch.randn(rows, classes), labels]


def get_init_inputs():
    return []
