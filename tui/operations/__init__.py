"""What both front ends do, one module per noun: nothing here prints, asks or imports a screen.

Everything blocks and raises HeadgateErrors only; a screen calls it from a worker thread.
"""
