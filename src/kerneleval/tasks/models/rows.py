"""Rows of a matrix, products of matrices, sequences."""

from __future__ import annotations

from kerneleval.records import Scalar, Task
from kerneleval.tasks.models.table import Table, tables, transposed


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


def _products(task: Task) -> bool:
    return task.category == "gemm" or (task.category == "fused" and "linear" in task.name)


TABLES: tuple[Table, ...] = tables(
    """
    # tokens, classes
    M N: with_classes
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

    # scores of batch * heads * queries over keys; classes
    M N: softmaxes
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

    # tokens, width between the projections of a feed-forward network
    M N: gated_or_activating
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

    # rows and columns of a matrix that a vector is multiplied with: one token
    M N: products
    gpt2.up                   3072     768
    bert_large.down           1024    4096
    whisper_large.up          5120    1280
    llama3_8b.qkv             6144    4096
    llama3_8b.down            4096   14336
    qwen2_5_7b.up            18944    3584
    llama3_70b.o              8192    8192
    llama3_8b.head          128256    4096

    # a parameter
    M N: steps
    gpt2.up                   3072     768
    resnet50.conv4            1024     256
    llama3_8b.o               4096    4096
    deepseek_v3.expert        2048    7168
    llama3_8b.down            4096   14336

    # tokens, width of the model
    M N
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

    M N steps: steps
    gpt2.up                   3072     768    1
    gpt2.up_5_steps           3072     768    5
    resnet50.conv4            1024     256    1
    llama3_8b.o               4096    4096    1
    llama3_8b.o_5_steps       4096    4096    5
    deepseek_v3.expert        2048    7168    1

    # rows, columns, how many of them
    M N K: choosing
    deepseek_v3.router        4096     256    8
    llama3_8b.sampling          32  128256   50
    gpt2.sampling                1   50257   40

    # ---- products --------------------------------------------------------------------------------------------------
    # tokens, width that comes out, width that goes in
    M N K, M O K: products
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

    # batch * heads (or experts), queries, keys or width of a head, summed over
    B M N K: batched_products
    vit_b16.scores            96     197     197      64
    gpt2.scores               12    1024    1024      64
    gpt2.values               12    1024      64    1024
    bert_base.scores          96     512     512      64
    whisper_large.scores      20    1500    1500      64
    llama3_8b.scores          32    2048    2048     128
    llama3_8b.values          32    2048     128    2048
    deepseek_v3.experts        8     256    4096    7168

    B M N: gemv
    gpt2.decode_scores        12    1024      64
    llama3_8b.decode_scores   32    2048     128

    # ---- sequences -------------------------------------------------------------------------------------------------
    # batch, tokens, width
    B L D
    gpt2.hidden                1   1024    768
    bert_base.hidden           8    512    768
    whisper_large.hidden       1   1500   1280
    mamba_2_8b.hidden          1   2048   2560
    mamba_2_8b.inner           1   2048   5120
    llama3_8b.prefill          1   2048   4096

    # vocabulary, width, batch, tokens
    V D B L
    bert_base.embedding    30522    768    8    512
    gpt2.embedding         50257    768    1   1024
    whisper_large.tokens   51866   1280    1    448
    llama3_8b.decode      128256   4096   32      1
    llama3_8b.prefill     128256   4096    1   2048
    qwen2_5_7b.prefill    152064   3584    1   2048

    # vocabulary, width, tokens
    V N K
    bert_base.embedding    30522    768   4096
    gpt2.embedding         50257    768   1024
    llama3_8b.decode      128256   4096     32
    llama3_8b.prefill     128256   4096   2048

    # batch, channels, positions, width of the kernel
    B C L K
    mamba_2_8b.decode         32   5120      4   4
    mamba_2_8b.prefill         1   5120   2048   4

    B C L K S
    mamba_2_8b.prefill         1   5120   2048   4   1
    whisper_large.frames       1   1280   3000   3   2

    B C L K S E
    mamba_2_8b.prefill         1   5120   2048   4   1   3
    whisper_large.frames       1   1280   3000   3   2   1

    # batch, channels in and out, positions, width of the kernel, stride, padding
    B C O L K S E: not_transposed
    whisper_large.conv1        1    128   1280   3000   3   1   1
    whisper_large.conv2        1   1280   1280   3000   3   2   1
    """,
    with_classes=_with_classes,
    softmaxes=lambda task: "softmax" in task.name and task.category == "normalization",
    gated_or_activating=lambda task: task.group == "Activation" or "glu" in task.name,
    products=_products,
    steps=lambda task: task.group == "Optimizer",
    choosing=lambda task: task.name.startswith(("topk", "kthvalue")),
    batched_products=lambda task: _products(task) or task.name.startswith(("bmm", "baddbmm")),
    gemv=lambda task: task.name.startswith("gemv"),
    not_transposed=lambda task: not transposed(task),
)
