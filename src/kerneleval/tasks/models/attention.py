"""Attention and what belongs to it: heads, rotary positions, caches, mixtures of experts."""

from __future__ import annotations

from kerneleval.tasks.models.table import Table, tables

TABLES: tuple[Table, ...] = tables(
    """
    # batch, heads, queries, keys, width of a head
    B H L S D: without_sinks
    gpt2.decode                1   12      1   1024    64
    vit_b16.encoder            8   12    197    197    64
    bert_base.encoder          8   12    512    512    64
    bert_large.encoder         8   16    512    512    64
    whisper_large.cross        1   20    448   1500    64
    whisper_large.encoder      1   20   1500   1500    64
    sd_2_1.cross               2    5   4096     77    64
    sd_2_1.self                2    5   4096   4096    64

    # the same where queries and keys are as many
    B H L D, B H N D
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

    # batch, heads of keys, queries for each of them, queries, keys, width of a head
    B G R L S D
    llama3_8b.decode           4    8    4      1   2048   128
    qwen2_5_7b.decode          4    4    7      1   2048   128
    mistral_7b.decode          4    8    4      1   4096   128
    llama3_70b.decode          4    8    8      1   2048   128
    qwen2_5_7b.prefill         1    4    7   2048   2048   128
    llama3_8b.prefill          1    8    4   2048   2048   128
    llama3_70b.prefill         1    8    8   2048   2048   128

    # batch, heads of queries, heads of keys, tokens, width of a head
    B H G L D
    llama3_8b.decode          32   32    8      1   128
    llama3_8b.prefill          1   32    8   2048   128
    qwen2_5_7b.prefill         1   28    4   2048   128
    llama3_70b.prefill         1   64    8   2048   128

    B H L S
    vit_b16.encoder            8   12    197    197
    gpt2.context               1   12   1024   1024
    bert_base.encoder          8   12    512    512
    whisper_large.cross        1   20    448   1500
    sd_2_1.cross               2    5   4096     77
    llama3_8b.decode           4   32      1   2048
    llama3_8b.prefill          1   32   2048   2048

    B H L: softmaxes
    gpt2.context               1   12   1024
    whisper_large.decoder      1   20    448
    llama3_8b.prefill          1   32   2048

    # batch, heads, tokens, window
    B H L K
    mistral_7b.window_1024     1   32   2048   1024

    # batch, tokens, heads, half the width of a head
    B L H P2
    llama3_8b.decode          32      1   32   64
    qwen2_5_7b.prefill         1   2048   28   64
    llama3_8b.prefill          1   2048   32   64
    deepseek_v3.prefill        1   2048  128   32
    llama3_70b.prefill         1   2048   64   64

    # tokens, heads of queries, heads of keys, half the width of a head, positions
    T H G P2 P
    llama3_8b.decode          32   32    8   64   8192
    qwen2_5_7b.prefill      2048   28    4   64  32768
    llama3_8b.prefill       2048   32    8   64   8192
    llama3_70b.prefill      2048   64    8   64   8192

    T H P2 P
    llama3_8b.decode          32   32   64   8192
    qwen2_5_7b.prefill      2048   28   64  32768
    llama3_8b.prefill       2048   32   64   8192

    # heads, tokens, width of a head, sequences
    H L D C
    vit_b16.packed            12    788   64   4
    gpt2.packed               12   1024   64   4

    # splits, tokens, heads, width of a head
    T H D
    llama3_8b.decode 32 32 128
    llama3_8b.prefill 2048 32 128
    deepseek_v3.decode 32 128 512

    P T H D
    llama3_8b.decode 8 32 32 128
    deepseek_v3.decode 8 32 128 512

    # ---- caches of keys and values, in pages of 16 tokens, for 32 sequences of 2048 ----------------------------------
    # batch, heads of keys, queries for each of them, eights of a head, pages, slots of a page, pages of a sequence
    B G R W V S N: without_sinks
    qwen2_5_7b.decode         32    4    7   16   4096   16   128
    llama3_8b.decode          32    8    4   16   4096   16   128
    llama3_70b.decode         32    8    8   16   4096   16   128

    # tokens, pages, slots of a page, heads of keys, eights of a head
    T V S G W
    qwen2_5_7b.decode         32   4096   16   4   16
    llama3_8b.decode          32   4096   16   8   16
    llama3_8b.prefill       2048   4096   16   8   16

    # tokens, pages, slots of a page, latent width, turned width
    T V S R P
    deepseek_v3.decode        32   4096   16   512   64
    deepseek_v3.prefill     2048   4096   16   512   64

    # batch, tokens, heads of keys, eights of a head
    B L G W
    qwen2_5_7b.decode         32   2048   4   16
    llama3_8b.decode          32   2048   8   16

    # ---- mixtures of experts -----------------------------------------------------------------------------------------
    # tokens, experts, of which each token gets so many
    T E K
    deepseek_v3.decode        32    256   8
    mixtral_8x7b.prefill    2048      8   2
    olmoe_1b_7b.prefill     2048     64   8
    deepseek_v3.prefill     2048    256   8

    T E
    deepseek_v3.decode        32    256
    mixtral_8x7b.prefill    2048      8
    olmoe_1b_7b.prefill     2048     64
    deepseek_v3.prefill     2048    256

    # tokens, experts of a group, groups, experts that a token gets, groups that are kept
    T E G K C
    deepseek_v3.decode        32     32   8   8   4
    deepseek_v3.prefill     2048     32   8   8   4

    # tokens, experts, of which each token gets so many, rows of a block
    T E K S
    deepseek_v3.decode        32    256   8   64
    mixtral_8x7b.prefill    2048      8   2   64
    deepseek_v3.prefill     2048    256   8   64

    # tokens, width of the model, experts of each token (and experts)
    T D K
    mixtral_8x7b.prefill 2048 4096 2
    olmoe_1b_7b.prefill 2048 2048 8
    deepseek_v3.decode 32 7168 8
    deepseek_v3.prefill 2048 7168 8

    T D K E
    mixtral_8x7b.prefill 2048 4096 2 8
    olmoe_1b_7b.prefill 2048 2048 8 64
    deepseek_v3.decode 32 7168 8 256
    deepseek_v3.prefill 2048 7168 8 256

    # tokens, width that goes in, width that comes out, experts
    T D N E: gemm
    olmoe_1b_7b.up           256   2048    2048   64
    olmoe_1b_7b.down         256   1024    2048   64
    mixtral_8x7b.down         64  14336    4096    8
    mixtral_8x7b.up           64   4096   28672    8

    # tokens, width of the model, width of an expert, experts, of which each token gets so many
    T D N E K
    olmoe_1b_7b.decode        32   2048    1024   64   8
    mixtral_8x7b.decode       32   4096   14336    8   2
    """,
    # beside thousands of keys a sink has no weight that could be seen
    without_sinks=lambda task: "sink" not in task.name,
    softmaxes=lambda task: "softmax" in task.name,
    gemm=lambda task: task.category == "gemm",
)
