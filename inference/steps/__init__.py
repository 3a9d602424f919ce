"""The E and M steps of variational EM as functions of arrays: they know no story."""
