"""Search for leaked secrets, swap ciphertexts, and rotate the key ring."""
