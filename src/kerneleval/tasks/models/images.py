"""Images and volumes: convolutions, norms, pools."""

from __future__ import annotations

from kerneleval.tasks.models.table import Table, tables, transposed

TABLES: tuple[Table, ...] = tables(
    """
    # batch, channels in and out, height, width, kernel, stride, padding
    B C O H W K S E: transposed
    dcgan.layer2              16   1024    512     4     4   4   2   1
    dcgan.layer3              16    512    256     8     8   4   2   1
    dcgan.layer4              16    256    128    16    16   4   2   1

    # ... and padding of the output
    B C O H W K S E A
    cyclegan.up1               1    256    128    64    64   3   2   1   1
    cyclegan.up2               1    128     64   128   128   3   2   1   1

    B C O H W K S E
    resnet50.conv1             8      3     64   224   224   7   2   3
    resnet50.conv2_reduce      8     64     64    56    56   1   1   0
    resnet50.conv2_3x3         8     64     64    56    56   3   1   1
    resnet50.conv2_expand      8     64    256    56    56   1   1   0
    resnet50.conv3_3x3         8    128    128    56    56   3   2   1
    resnet50.conv3_shortcut    8    256    512    56    56   1   2   0
    resnet50.conv4_3x3         8    256    256    14    14   3   1   1
    resnet50.conv5_3x3         8    512    512     7     7   3   1   1
    resnet50.conv5_expand      8    512   2048     7     7   1   1   0
    sd_2_1.in                  2      4    320    64    64   3   1   1
    sd_2_1.down1               2    320    320    64    64   3   1   1
    sd_2_1.down2               2    640    640    32    32   3   1   1
    sd_2_1.middle              2   1280   1280     8     8   3   1   1

    # the same, kernel 1
    B C O H W: pointwise
    resnet50.conv2_reduce      8    256     64    56    56
    resnet50.conv3_expand      8    128    512    28    28
    resnet50.conv4_reduce      8   1024    256    14    14
    resnet50.conv5_expand      8    512   2048     7     7
    mobilenet_v2.expand        8     24    144    56    56

    # kernel 4, stride 2
    B C O H W: transposed
    dcgan.layer2              16   1024    512     4     4
    dcgan.layer3              16    512    256     8     8
    dcgan.layer4              16    256    128    16    16

    # kernel 3, stride 1
    B C O H W
    resnet50.conv2_3x3         8     64     64    56    56
    resnet50.conv3_3x3         8    128    128    28    28
    resnet50.conv4_3x3         8    256    256    14    14
    resnet50.conv5_3x3         8    512    512     7     7
    vgg16.conv1_2              1     64     64   224   224
    sd_2_1.down1               2    320    320    64    64
    sd_2_1.down2               2    640    640    32    32

    # batch, channels, height, width, kernel, stride, padding: pooling
    B C H W K S E: pooling
    resnet50.pool1             8     64   112   112   3   2   1
    vgg16.pool1                1     64   224   224   2   2   0
    vgg16.pool3                8    256    56    56   2   2   0
    vgg16.pool5                8    512    14    14   2   2   0

    B C H W K S: pooling
    resnet50.pool1             8     64   112   112   3   2
    vgg16.pool1                1     64   224   224   2   2
    vgg16.pool3                8    256    56    56   2   2
    vgg16.pool5                8    512    14    14   2   2

    # batch, channels, height, width, kernel, stride, padding: a kernel for each channel
    B C H W K S E
    mobilenet_v2.block1        8     32   112   112   3   1   1
    mobilenet_v2.block2        8     96   112   112   3   2   1
    mobilenet_v2.block4        8    192    28    28   3   1   1
    mobilenet_v2.block17       8    960     7     7   3   1   1
    convnext_tiny.stage1       8     96    56    56   7   1   3
    convnext_tiny.stage4       8    768     7     7   7   1   3

    B C H W K S E D
    resnet50.pool1             8     64   112   112   3   2   1   1
    vgg16.pool1                1     64   224   224   2   2   0   1
    vgg16.pool5                8    512    14    14   2   2   0   1

    # batch, channels, height, width, height and width that come out
    B C H W P Q: pooling
    resnet50.pool5             8   2048     7     7    1    1
    vgg16.classifier           8    512    14    14    7    7

    # batch, channels, height, width, factor
    B C H W S: spatial
    sd_2_1.up1                 2   1280     8     8   2
    sd_2_1.up2                 2   1280    16    16   2
    sd_2_1.up3                 2    640    32    32   2

    # batch, channels, height, width
    B C H W, B O H W
    resnet50.conv1             8     64   112   112
    resnet50.conv2             8    256    56    56
    resnet50.conv3             8    512    28    28
    resnet50.conv5             8   2048     7     7
    mobilenet_v2.block2        8     96   112   112
    sd_2_1.down1               2    320    64    64
    sd_2_1.down2               2    640    32    32

    # batch, channels, positions
    B C L
    resnet50.conv1             8     64  12544
    resnet50.conv2             8    256   3136
    resnet50.conv5             8   2048     49

    # batch, groups, channels of each, positions
    B G C L
    sd_2_1.middle              2   32   40     64
    sd_2_1.down2               2   32   20   1024
    sd_2_1.down1               2   32   10   4096

    # batch, channels, padding at the ends
    B C H W S T
    resnet50.conv2             8     64    56    56   1   1
    resnet50.conv4             8    256    14    14   1   1
    sd_2_1.down1               2    320    64    64   1   1

    # batch, channels in and out, patches down and across, side of a patch
    B C O P Q K
    vit_b16.patches            8      3    768    14    14   16

    B C P Q K
    vit_b16.patches            8      3     14    14   16

    # ---- volumes ---------------------------------------------------------------------------------------------------
    # batch, channels in and out, frames, height, width, kernel, stride, padding
    B C O T H W K S E: not_transposed
    c3d.conv1                  1      3     64    16   112   112   3   1   1
    c3d.conv3a                 1    128    256     8    28    28   3   1   1
    c3d.conv5a                 1    512    512     2     7     7   3   1   1

    # kernel 4, stride 2
    B C O D H W: transposed
    gan3d.layer2               4    512    256     4     4     4
    gan3d.layer3               4    256    128     8     8     8
    gan3d.layer4               4    128     64    16    16    16

    # kernel 3, stride 1
    B C O D H W
    c3d.conv2a                 1     64    128    16    56    56
    c3d.conv3a                 1    128    256     8    28    28
    c3d.conv4b                 1    512    512     4    14    14
    """,
    transposed=transposed,
    pointwise=lambda task: "pointwise" in task.name,
    pooling=lambda task: task.group == "Pooling",
    spatial=lambda task: task.group == "SpatialOps",
    not_transposed=lambda task: not transposed(task),
)
