"""Search all output for leaked secrets, move ciphertexts to other rows, and rotate the key ring."""
