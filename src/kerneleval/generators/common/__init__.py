"""What generators share: protocols, prompts, feedback, settings files. Plugins stand one level up."""
