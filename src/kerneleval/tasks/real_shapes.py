"""Shapes that models in public use have: one table for each family of tasks, matched by the names of their dims.

A row is ``model.part`` and a value for each dim. A task gets the rows of the first table that has its very dims (in any
order) and means its kind of operator, but for those that its own constraint, or a limit of its own on a dim, forbids.
Where a model leaves a number open (tokens, batch), the part's name says what it was taken for: ``decode`` is one token
each of 32 sequences, ``prefill`` 2048 tokens of a prompt, others the model's own context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kerneleval.records import Scalar, Task
from kerneleval.tasks.sampling import RANGES, lowest

__all__ = ["SOURCES", "RealShape", "real_shapes"]

_HUB = "https://huggingface.co"

SOURCES: dict[str, str] = {
    "bert_base": f"bert-base-uncased, config.json: {_HUB}/google-bert/bert-base-uncased",
    "bert_large": f"bert-large-uncased, config.json: {_HUB}/google-bert/bert-large-uncased",
    "c3d": "Tran et al. 2015, Learning Spatiotemporal Features with 3D Convolutional Networks, fig. 3: "
    "https://arxiv.org/abs/1412.0767",
    "convnext_tiny": "Liu et al. 2022, A ConvNet for the 2020s, table 9: https://arxiv.org/abs/2201.03545",
    "dcgan": "Radford et al. 2016, Unsupervised Representation Learning with DCGANs, fig. 1: "
    "https://arxiv.org/abs/1511.06434",
    "deepseek_v3": f"DeepSeek-V3, config.json: {_HUB}/deepseek-ai/DeepSeek-V3",
    "gan3d": "Wu et al. 2016, Learning a Probabilistic Latent Space of Object Shapes via 3D-GAN, sec. 3.1: "
    "https://arxiv.org/abs/1610.07584",
    "gpt2": f"GPT-2 (124M), config.json: {_HUB}/openai-community/gpt2",
    "llama3_70b": f"Meta-Llama-3-70B, config.json: {_HUB}/meta-llama/Meta-Llama-3-70B",
    "llama3_8b": f"Meta-Llama-3-8B, config.json: {_HUB}/meta-llama/Meta-Llama-3-8B",
    "mamba_2_8b": f"mamba-2.8b, config.json: {_HUB}/state-spaces/mamba-2.8b",
    "mistral_7b": f"Mistral-7B-v0.1, config.json: {_HUB}/mistralai/Mistral-7B-v0.1",
    "mobilenet_v2": "Sandler et al. 2018, MobileNetV2, table 2: https://arxiv.org/abs/1801.04381",
    "qwen2_5_7b": f"Qwen2.5-7B, config.json: {_HUB}/Qwen/Qwen2.5-7B",
    "resnet50": "He et al. 2015, Deep Residual Learning for Image Recognition, table 1: https://arxiv.org/abs/1512.03385",
    "sd_2_1": f"Stable Diffusion 2.1 base, unet/config.json: {_HUB}/stabilityai/stable-diffusion-2-1-base",
    "vgg16": "Simonyan and Zisserman 2014, Very Deep Convolutional Networks, table 1, D: https://arxiv.org/abs/1409.1556",
    "vit_b16": f"ViT-B/16 at 224 x 224, config.json: {_HUB}/google/vit-base-patch16-224",
    "whisper_large": f"Whisper large-v3, config.json: {_HUB}/openai/whisper-large-v3",
}
"""Where each model's numbers are from."""


@dataclass(frozen=True, kw_only=True)
class RealShape:
    """Dims at which a model calls an operator."""

    name: str
    """``model.part``: ``llama3_8b.prefill``."""
    dims: dict[str, int]
    """The task's dims, in its order."""
    source: str
    """Paper or model card, and where to find it."""


def real_shapes(task: Task) -> tuple[RealShape, ...]:
    """The shapes of models that a task has; none for tasks with sizes of their own, or of no family known here."""
    if task.case_dims:
        return ()
    names = [dim.name for dim in task.dims]
    table = next((t for t in _TABLES if set(t.dims) == set(names) and t.means(task)), None)
    found = []
    for name, values in table.rows if table is not None else ():
        row = dict(zip(table.dims, values, strict=True)) if table is not None else {}
        dims = {dim: row[dim] for dim in names}
        if _allowed(task, dims):
            found.append(RealShape(name=name, dims=dims, source=SOURCES[name.partition(".")[0]]))
    return tuple(found)


def _allowed(task: Task, dims: dict[str, int]) -> bool:
    """Whether the operator is defined there.

    Where sampling ends (8192 and more, and dims that are not scaled) is no limit of the operator's; nor is any, where
    nothing is computed.
    """
    for dim in task.dims:
        value = dims[dim.name]
        limited = dim.scaled and dim.high < RANGES["large"][1] and task.tolerance.kind != "exact"
        if value < lowest(dim) or value % dim.multiple_of or (limited and value > dim.high):
            return False
    return task.constraint is None or bool(task.constraint(dims))


# --------------------------------------------------------------------------------------------------------------------
# Kinds of operators that share the names of their dims
# --------------------------------------------------------------------------------------------------------------------


def _any(task: Task) -> bool:
    return True


def _with_classes(task: Task) -> bool:
    """Losses over the classes of each row, and what is drawn or sorted from a row of them."""
    dims = {dim.name: 64 + i for i, dim in enumerate(task.dims)}
    tensors = [arg for arg in task.arguments(dims, task.dtypes[0]) if not isinstance(arg, Scalar)]
    labels = any(arg.role == "index" and arg.shape == (dims["M"],) for arg in tensors)
    return (
        labels
        or task.name in ("multinomial", "softmax_entropy")
        or (task.group, task.category) == ("Index", "reduction")
    )


def _softmaxes(task: Task) -> bool:
    return "softmax" in task.name and task.category == "normalization"


def _gated_or_activating(task: Task) -> bool:
    return task.group == "Activation" or "glu" in task.name


def _products(task: Task) -> bool:
    return task.category == "gemm" or (task.category == "fused" and "linear" in task.name)


def _choosing(task: Task) -> bool:
    return task.name.startswith(("topk", "kthvalue"))


def _steps(task: Task) -> bool:
    return task.group == "Optimizer"


def _transposed(task: Task) -> bool:
    return "transpose" in task.name


# --------------------------------------------------------------------------------------------------------------------
# Tables
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Table:
    dims: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    means: Callable[[Task], bool]


def _table(dims: str, rows: str, means: Callable[[Task], bool] = _any) -> _Table:
    """A table from text: a line for each row, its name and then its numbers."""

    def read() -> Iterator[tuple[str, tuple[int, ...]]]:
        for line in filter(None, map(str.strip, rows.splitlines())):
            name, *values = line.split()
            yield name, tuple(map(int, values))

    return _Table(dims=tuple(dims.split()), rows=tuple(read()), means=means)


_TABLES: tuple[_Table, ...] = (
    # ---- rows of a matrix -----------------------------------------------------------------------------------------
    # tokens, classes
    _table(
        "M N",
        """
        resnet50.classes           256    1000
        bert_base.vocabulary       512   30522
        gpt2.vocabulary           1024   50257
        whisper_large.vocabulary   448   51866
        mistral_7b.decode           32   32000
        llama3_8b.decode            32  128256
        qwen2_5_7b.decode           32  152064
        mamba_2_8b.vocabulary     2048   50280
        deepseek_v3.prefill       2048  129280
        llama3_8b.prefill         2048  128256
        """,
        _with_classes,
    ),
    # scores of batch * heads * queries over keys; classes
    _table(
        "M N",
        """
        vit_b16.scores           18912     197
        bert_base.scores         49152     512
        gpt2.scores              12288    1024
        whisper_large.scores     30000    1500
        sd_2_1.cross_scores      40960      77
        llama3_8b.decode_scores   1024    2048
        llama3_8b.scores         65536    2048
        deepseek_v3.router        4096     256
        gpt2.vocabulary           1024   50257
        llama3_8b.decode            32  128256
        """,
        _softmaxes,
    ),
    # tokens, width between the projections of a feed-forward network
    _table(
        "M N",
        """
        gpt2.mlp                  1024    3072
        bert_base.mlp             4096    3072
        bert_large.mlp            4096    4096
        vit_b16.mlp               6304    3072
        whisper_large.mlp         1500    5120
        mamba_2_8b.inner          2048    5120
        llama3_8b.decode_mlp        32   14336
        deepseek_v3.expert         256    2048
        llama3_8b.mlp             2048   14336
        qwen2_5_7b.mlp            2048   18944
        deepseek_v3.mlp           4096   18432
        llama3_70b.mlp            2048   28672
        """,
        _gated_or_activating,
    ),
    # rows and columns of a matrix that a vector is multiplied with: one token
    _table(
        "M N",
        """
        gpt2.up                   3072     768
        bert_large.down           1024    4096
        whisper_large.up          5120    1280
        llama3_8b.qkv             6144    4096
        llama3_8b.down            4096   14336
        qwen2_5_7b.up            18944    3584
        llama3_70b.o              8192    8192
        llama3_8b.head          128256    4096
        """,
        _products,
    ),
    # a parameter
    _table(
        "M N",
        """
        gpt2.up                   3072     768
        resnet50.conv4            1024     256
        llama3_8b.o               4096    4096
        deepseek_v3.expert        2048    7168
        llama3_8b.down            4096   14336
        """,
        _steps,
    ),
    # tokens, width of the model
    _table(
        "M N",
        """
        gpt2.hidden               1024     768
        bert_base.hidden          4096     768
        bert_large.hidden         4096    1024
        vit_b16.hidden            6304     768
        whisper_large.hidden      1500    1280
        mamba_2_8b.hidden         2048    2560
        llama3_8b.decode            32    4096
        deepseek_v3.decode          32    7168
        llama3_8b.prefill         2048    4096
        mistral_7b.context        8192    4096
        qwen2_5_7b.prefill        2048    3584
        llama3_70b.prefill        2048    8192
        """,
    ),
    _table(
        "M N steps",
        """
        gpt2.up                   3072     768    1
        gpt2.up_5_steps           3072     768    5
        resnet50.conv4            1024     256    1
        llama3_8b.o               4096    4096    1
        llama3_8b.o_5_steps       4096    4096    5
        deepseek_v3.expert        2048    7168    1
        """,
        _steps,
    ),
    # rows, columns, how many of them
    _table(
        "M N K",
        """
        deepseek_v3.router        4096     256    8
        llama3_8b.sampling          32  128256   50
        gpt2.sampling                1   50257   40
        """,
        _choosing,
    ),
    # ---- products --------------------------------------------------------------------------------------------------
    # tokens, width that comes out, width that goes in
    *(
        _table(
            dims,
            """
            resnet50.head              256    1000    2048
            gpt2.qkv                  1024    2304     768
            gpt2.mlp_down             1024     768    3072
            bert_large.qkv            4096    3072    1024
            vit_b16.mlp_up            6304    3072     768
            whisper_large.mlp_up      1500    5120    1280
            mamba_2_8b.in             2048   10240    2560
            llama3_8b.decode_qkv        32    6144    4096
            llama3_8b.decode_down       32    4096   14336
            deepseek_v3.expert         256    4096    7168
            deepseek_v3.query_latent  2048    1536    7168
            llama3_8b.qkv             2048    6144    4096
            llama3_8b.gate_up         2048   28672    4096
            llama3_8b.mlp_down        2048    4096   14336
            qwen2_5_7b.qkv            2048    4608    3584
            qwen2_5_7b.gate_up        2048   37888    3584
            llama3_70b.mlp_down       2048    8192   28672
            llama3_8b.decode_head       32  128256    4096
            """,
            _products,
        )
        for dims in ("M N K", "M O K")
    ),
    # batch * heads (or experts), queries, keys or width of a head, summed over
    _table(
        "B M N K",
        """
        vit_b16.scores            96     197     197      64
        gpt2.scores               12    1024    1024      64
        gpt2.values               12    1024      64    1024
        bert_base.scores          96     512     512      64
        whisper_large.scores      20    1500    1500      64
        llama3_8b.scores          32    2048    2048     128
        llama3_8b.values          32    2048     128    2048
        deepseek_v3.experts        8     256    4096    7168
        """,
        lambda task: _products(task) or task.name.startswith(("bmm", "baddbmm")),
    ),
    _table(
        "B M N",
        """
        gpt2.decode_scores        12    1024      64
        llama3_8b.decode_scores   32    2048     128
        """,
        lambda task: task.name.startswith("gemv"),
    ),
    # ---- attention -------------------------------------------------------------------------------------------------
    # batch, heads, queries, keys, width of a head
    _table(
        "B H L S D",
        """
        gpt2.decode                1   12      1   1024    64
        vit_b16.encoder            8   12    197    197    64
        bert_base.encoder          8   12    512    512    64
        bert_large.encoder         8   16    512    512    64
        whisper_large.cross        1   20    448   1500    64
        whisper_large.encoder      1   20   1500   1500    64
        sd_2_1.cross               2    5   4096     77    64
        sd_2_1.self                2    5   4096   4096    64
        """,
    ),
    # the same where queries and keys are as many
    *(
        _table(
            dims,
            """
            vit_b16.encoder            8   12    197    64
            gpt2.context               1   12   1024    64
            bert_base.encoder          8   12    512    64
            bert_large.encoder         8   16    512    64
            whisper_large.decoder      1   20    448    64
            whisper_large.encoder      1   20   1500    64
            llama3_8b.prefill          1   32   2048   128
            qwen2_5_7b.prefill         1   28   2048   128
            mistral_7b.window          1   32   4096   128
            llama3_70b.prefill         1   64   2048   128
            deepseek_v3.values         1  128   2048   128
            """,
        )
        for dims in ("B H L D", "B H N D")
    ),
    # batch, heads of keys, queries for each of them, queries, keys, width of a head
    _table(
        "B G R L S D",
        """
        llama3_8b.decode           4    8    4      1   2048   128
        qwen2_5_7b.decode          4    4    7      1   2048   128
        mistral_7b.decode          4    8    4      1   4096   128
        llama3_70b.decode          4    8    8      1   2048   128
        qwen2_5_7b.prefill         1    4    7   2048   2048   128
        llama3_8b.prefill          1    8    4   2048   2048   128
        llama3_70b.prefill         1    8    8   2048   2048   128
        """,
    ),
    # batch, heads of queries, heads of keys, tokens, width of a head
    _table(
        "B H G L D",
        """
        llama3_8b.decode          32   32    8      1   128
        llama3_8b.prefill          1   32    8   2048   128
        qwen2_5_7b.prefill         1   28    4   2048   128
        llama3_70b.prefill         1   64    8   2048   128
        """,
    ),
    _table(
        "B H L S",
        """
        vit_b16.encoder            8   12    197    197
        gpt2.context               1   12   1024   1024
        bert_base.encoder          8   12    512    512
        whisper_large.cross        1   20    448   1500
        sd_2_1.cross               2    5   4096     77
        llama3_8b.decode           4   32      1   2048
        llama3_8b.prefill          1   32   2048   2048
        """,
    ),
    _table(
        "B H L",
        """
        gpt2.context               1   12   1024
        whisper_large.decoder      1   20    448
        llama3_8b.prefill          1   32   2048
        """,
        lambda task: "softmax" in task.name,
    ),
    # batch, heads, tokens, window
    _table(
        "B H L K",
        """
        mistral_7b.window_1024     1   32   2048   1024
        """,
    ),
    # ---- sequences -------------------------------------------------------------------------------------------------
    # batch, tokens, width
    _table(
        "B L D",
        """
        gpt2.hidden                1   1024    768
        bert_base.hidden           8    512    768
        whisper_large.hidden       1   1500   1280
        mamba_2_8b.hidden          1   2048   2560
        mamba_2_8b.inner           1   2048   5120
        llama3_8b.prefill          1   2048   4096
        """,
    ),
    # vocabulary, width, batch, tokens
    _table(
        "V D B L",
        """
        bert_base.embedding    30522    768    8    512
        gpt2.embedding         50257    768    1   1024
        whisper_large.tokens   51866   1280    1    448
        llama3_8b.decode      128256   4096   32      1
        llama3_8b.prefill     128256   4096    1   2048
        qwen2_5_7b.prefill    152064   3584    1   2048
        """,
    ),
    # vocabulary, width, tokens
    _table(
        "V N K",
        """
        bert_base.embedding    30522    768   4096
        gpt2.embedding         50257    768   1024
        llama3_8b.decode      128256   4096     32
        llama3_8b.prefill     128256   4096   2048
        """,
    ),
    # batch, channels, positions, width of the kernel
    _table(
        "B C L K",
        """
        mamba_2_8b.decode         32   5120      4   4
        mamba_2_8b.prefill         1   5120   2048   4
        """,
    ),
    _table(
        "B C L K S",
        """
        mamba_2_8b.prefill         1   5120   2048   4   1
        whisper_large.frames       1   1280   3000   3   2
        """,
    ),
    # batch, channels in and out, positions, width of the kernel, stride
    _table(
        "B C O L K S",
        """
        whisper_large.conv1        1    128   1280   3000   3   1
        whisper_large.conv2        1   1280   1280   3000   3   2
        """,
        lambda task: not _transposed(task),
    ),
    # ---- images ----------------------------------------------------------------------------------------------------
    # batch, channels in and out, height, width, kernel, stride; the padding is the task's
    _table(
        "B C O H W K S",
        """
        dcgan.layer2              16   1024    512     4     4   4   2
        dcgan.layer3              16    512    256     8     8   4   2
        dcgan.layer4              16    256    128    16    16   4   2
        """,
        _transposed,
    ),
    _table(
        "B C O H W K S",
        """
        resnet50.conv1             8      3     64   224   224   7   2
        resnet50.conv2_reduce      8     64     64    56    56   1   1
        resnet50.conv2_3x3         8     64     64    56    56   3   1
        resnet50.conv2_expand      8     64    256    56    56   1   1
        resnet50.conv3_3x3         8    128    128    56    56   3   2
        resnet50.conv3_shortcut    8    256    512    56    56   1   2
        resnet50.conv4_3x3         8    256    256    14    14   3   1
        resnet50.conv5_3x3         8    512    512     7     7   3   1
        resnet50.conv5_expand      8    512   2048     7     7   1   1
        sd_2_1.in                  2      4    320    64    64   3   1
        sd_2_1.down1               2    320    320    64    64   3   1
        sd_2_1.down2               2    640    640    32    32   3   1
        sd_2_1.middle              2   1280   1280     8     8   3   1
        """,
    ),
    # the same, kernel 1
    _table(
        "B C O H W",
        """
        resnet50.conv2_reduce      8    256     64    56    56
        resnet50.conv3_expand      8    128    512    28    28
        resnet50.conv4_reduce      8   1024    256    14    14
        resnet50.conv5_expand      8    512   2048     7     7
        mobilenet_v2.expand        8     24    144    56    56
        """,
        lambda task: "pointwise" in task.name,
    ),
    # kernel 4, stride 2
    _table(
        "B C O H W",
        """
        dcgan.layer2              16   1024    512     4     4
        dcgan.layer3              16    512    256     8     8
        dcgan.layer4              16    256    128    16    16
        """,
        _transposed,
    ),
    # kernel 3, stride 1
    _table(
        "B C O H W",
        """
        resnet50.conv2_3x3         8     64     64    56    56
        resnet50.conv3_3x3         8    128    128    28    28
        resnet50.conv4_3x3         8    256    256    14    14
        resnet50.conv5_3x3         8    512    512     7     7
        vgg16.conv1_2              1     64     64   224   224
        sd_2_1.down1               2    320    320    64    64
        sd_2_1.down2               2    640    640    32    32
        """,
    ),
    # batch, channels, height, width, kernel, stride: max pooling
    _table(
        "B C H W K S",
        """
        resnet50.pool1             8     64   112   112   3   2
        vgg16.pool1                1     64   224   224   2   2
        vgg16.pool3                8    256    56    56   2   2
        vgg16.pool5                8    512    14    14   2   2
        """,
        lambda task: task.group == "Pooling",
    ),
    # batch, channels, height, width, kernel, stride: a kernel for each channel
    _table(
        "B C H W K S",
        """
        mobilenet_v2.block1        8     32   112   112   3   1
        mobilenet_v2.block2        8     96   112   112   3   2
        mobilenet_v2.block4        8    192    28    28   3   1
        mobilenet_v2.block17       8    960     7     7   3   1
        convnext_tiny.stage1       8     96    56    56   7   1
        convnext_tiny.stage4       8    768     7     7   7   1
        """,
    ),
    _table(
        "B C H W K S D",
        """
        resnet50.pool1             8     64   112   112   3   2   1
        vgg16.pool1                1     64   224   224   2   2   1
        vgg16.pool5                8    512    14    14   2   2   1
        """,
    ),
    # batch, channels, height, width, height and width that come out
    _table(
        "B C H W P Q",
        """
        resnet50.pool5             8   2048     7     7    1    1
        vgg16.classifier           8    512    14    14    7    7
        """,
        lambda task: task.group == "Pooling",
    ),
    # batch, channels, height, width, factor
    _table(
        "B C H W S",
        """
        sd_2_1.up1                 2   1280     8     8   2
        sd_2_1.up2                 2   1280    16    16   2
        sd_2_1.up3                 2    640    32    32   2
        """,
        lambda task: task.group == "SpatialOps",
    ),
    # batch, channels, height, width
    *(
        _table(
            dims,
            """
            resnet50.conv1             8     64   112   112
            resnet50.conv2             8    256    56    56
            resnet50.conv3             8    512    28    28
            resnet50.conv5             8   2048     7     7
            mobilenet_v2.block2        8     96   112   112
            sd_2_1.down1               2    320    64    64
            sd_2_1.down2               2    640    32    32
            """,
        )
        for dims in ("B C H W", "B O H W")
    ),
    # batch, channels, positions
    _table(
        "B C L",
        """
        resnet50.conv1             8     64  12544
        resnet50.conv2             8    256   3136
        resnet50.conv5             8   2048     49
        """,
    ),
    # batch, groups, channels of each, positions
    _table(
        "B G C L",
        """
        sd_2_1.middle              2   32   40     64
        sd_2_1.down2               2   32   20   1024
        sd_2_1.down1               2   32   10   4096
        """,
    ),
    _table(
        "B C H W G",
        """
        sd_2_1.middle              2   40     8     8   32
        sd_2_1.down2               2   20    32    32   32
        sd_2_1.down1               2   10    64    64   32
        """,
        lambda task: task.category == "normalization",
    ),
    # batch, channels, padding at the ends
    _table(
        "B C H W S T",
        """
        resnet50.conv2             8     64    56    56   1   1
        resnet50.conv4             8    256    14    14   1   1
        sd_2_1.down1               2    320    64    64   1   1
        """,
    ),
    # batch, channels in and out, patches down and across, side of a patch
    _table(
        "B C O P Q K",
        """
        vit_b16.patches            8      3    768    14    14   16
        """,
    ),
    _table(
        "B C P Q K",
        """
        vit_b16.patches            8      3     14    14   16
        """,
    ),
    # ---- volumes ---------------------------------------------------------------------------------------------------
    # batch, channels in and out, frames, height, width, kernel, stride
    _table(
        "B C O T H W K S",
        """
        c3d.conv1                  1      3     64    16   112   112   3   1
        c3d.conv3a                 1    128    256     8    28    28   3   1
        c3d.conv5a                 1    512    512     2     7     7   3   1
        """,
        lambda task: not _transposed(task),
    ),
    # kernel 4, stride 2
    _table(
        "B C O D H W",
        """
        gan3d.layer2               4    512    256     4     4     4
        gan3d.layer3               4    256    128     8     8     8
        gan3d.layer4               4    128     64    16    16    16
        """,
        _transposed,
    ),
    # kernel 3, stride 1
    _table(
        "B C O D H W",
        """
        c3d.conv2a                 1     64    128    16    56    56
        c3d.conv3a                 1    128    256     8    28    28
        c3d.conv4b                 1    512    512     4    14    14
        """,
    ),
)
