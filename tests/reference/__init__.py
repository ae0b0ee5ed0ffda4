"""Dense reference formulas for sparse Gaussian process regression, to test the library against.

Everything here is written for clarity from the equations of

    Schuerch, Azzimonti, Benavoli, Zaffalon (2020),
    Recursive Estimation for Sparse Gaussian Process Regression, Automatica 120,

"the paper" below, with N x N matrices and general solves. Nothing is shared with the library.

Notation: N samples X, M inducing inputs R, A test inputs s, Q outputs. Kab is the covariance
of a and b, Qab = Kar Krr^-1 Krb its low-rank approximation and Da = Kaa - Qaa the remainder.
"""
