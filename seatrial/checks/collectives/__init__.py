"""The check `collectives`: sweep each operation over every rank; are the results right, and how
fast do they come?
"""
