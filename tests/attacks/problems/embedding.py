"""Token ids to features: an embedding, tanh and a linear layer."""
import torch
from torch import nn
class Model(nn.Module):
    """A linear layer over squashed embeddings."""
    def __init__(self, vocabulary, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.out = nn.Linear(dim, dim)
    def forward(self, ids):
        return self.out(torch.tanh(self.embedding(ids)))
batch = 8
tokens = 128
vocabulary = 1000
dim = 64
def get_inputs():
    return [torch.randint(0, vocabulary, (batch, tokens))]
def get_init_inputs():
    return [vocabulary, dim]
