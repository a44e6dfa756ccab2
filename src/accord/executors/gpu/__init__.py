"""One GPU, a whole cohort at once. What lies where, for one block of K clients:

    Batched            takes requests, cuts them into blocks of as many clients as fit, longest first
      |
      |  for each client of the block: a Client = its job, its batches' row numbers and its noise, all drawn
      v
    Lanes              K clients whose tensors have the same shapes
      |
      |    Lane 0      Lane 1     ...   Lane K-1      one client at a time in each
      |   +---------+ +---------+      +---------+
      |   | given   | | given   |      | given   |    Buffers: private, memory and info; a step reads them
      |   | carry   | | carry   |      | carry   |    Buffers: weights, momenta, sums; a step writes them
      |   +----^----+ +----^----+      +----^----+
      |        |           |                |         with compile = true a Stack: the lanes' Buffers are slices of
      |        |           |                |         one tensor [K, ...], and one compiled StackedStep does all
      |        +-----------+-------+--------+
      |                            |
      |                        one step of all lanes, each on a stream of its own:
      |                        a Recording (CUDA graph) made once by the Recorder and replayed S times
      |                            ^
      |                            |  batch s of every lane, [K, B, ...]
      |             +--------------+--------------+
      |             |                             |
      |   Tables [S, K, B]               Samples [N, ...]
      |   rows, labels, weights,         the clients' inputs and labels, looked up by the rows
      |   noise; a counter on the        in the Tables
      |   device says which s is next
      v
    Results            copied out of a lane's carry as soon as its client is done; what a part does after the last step
                       (`close`) is a Recording of all lanes before that, where their clients are of one size

Boxes, Tables and Samples stay at their addresses, which is what lets a recorded step be replayed for other clients.
Nothing passes between host and device from a block's first step to its last.

    batched.py   Batched            buffers.py   Buffers              graphs.py     Recorder, Recording
    lane.py      Client, Lane       tables.py    Tables               stack.py      Stack
    lanes.py     Lanes              samples.py   Samples              compiler.py   StackedStep
    precision.py how exactly the device multiplies
"""

from accord.executors.gpu.batched import Batched

__all__ = ["Batched"]
