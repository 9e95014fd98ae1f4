"""What devices share: the protocol ``Device``, data sheets, GPUs under PyTorch. Plugins stand one level up."""
