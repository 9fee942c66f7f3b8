"""What kernels are made of: compilation, views of columns, growing columns, pools, ids and texts. No rule of the
engine lives here.
"""
