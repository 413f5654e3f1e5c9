"""What an assistant may ask, over the Model Context Protocol: it reads, and changes nothing."""
