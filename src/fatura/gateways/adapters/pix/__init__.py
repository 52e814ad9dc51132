"""The provider `pix`: charges by Pix with a due date at any bank with the Pix API of the Central Bank (D-262)."""
