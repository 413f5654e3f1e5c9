"""Every metric that a panel or a rule uses, with its title, and its meaning to an operator where its help says less."""
