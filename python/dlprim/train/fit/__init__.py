"""What people train with: `fit` and `predict` on any module, and estimators for scikit-learn.

All of it stands on the loop of the training program, `dlprim.train.loop`.
"""
