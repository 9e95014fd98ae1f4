"""Where the numbers of each model are from: its card or its paper."""

from __future__ import annotations

_HUB = "https://huggingface.co"

SOURCES: dict[str, str] = {
    "bert_base": f"bert-base-uncased, config.json: {_HUB}/google-bert/bert-base-uncased",
    "bert_large": f"bert-large-uncased, config.json: {_HUB}/google-bert/bert-large-uncased",
    "c3d": "Tran et al. 2015, Learning Spatiotemporal Features with 3D Convolutional Networks, fig. 3: "
    "https://arxiv.org/abs/1412.0767",
    "convnext_tiny": "Liu et al. 2022, A ConvNet for the 2020s, table 9: https://arxiv.org/abs/2201.03545",
    "cyclegan": "Zhu et al. 2017, Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial Networks, "
    "sec. 7.2: https://arxiv.org/abs/1703.10593",
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
    "mixtral_8x7b": f"Mixtral-8x7B-v0.1, config.json: {_HUB}/mistralai/Mixtral-8x7B-v0.1",
    "mobilenet_v2": "Sandler et al. 2018, MobileNetV2, table 2: https://arxiv.org/abs/1801.04381",
    "olmoe_1b_7b": f"OLMoE-1B-7B-0924, config.json: {_HUB}/allenai/OLMoE-1B-7B-0924",
    "qwen2_5_7b": f"Qwen2.5-7B, config.json: {_HUB}/Qwen/Qwen2.5-7B",
    "resnet50": "He et al. 2015, Deep Residual Learning for Image Recognition, table 1: https://arxiv.org/abs/1512.03385",
    "sd_2_1": f"Stable Diffusion 2.1 base, unet/config.json: {_HUB}/stabilityai/stable-diffusion-2-1-base",
    "vgg16": "Simonyan and Zisserman 2014, Very Deep Convolutional Networks, table 1, D: https://arxiv.org/abs/1409.1556",
    "vit_b16": f"ViT-B/16 at 224 x 224, config.json: {_HUB}/google/vit-base-patch16-224",
    "whisper_large": f"Whisper large-v3, config.json: {_HUB}/openai/whisper-large-v3",
}
"""By the name with which the names of its shapes begin."""
