"""Clients on many machines or GPUs, by Ray. Who does what:

    OnRay       takes requests, deals the clients out, longest first, and puts the answers together
      |
      |  Crew      the actors: started side by side, replaced by new ones when they are lost
      |    |
      |    |   Trainer   in its own process, perhaps on another machine: the data, the tasks, and an executor of one
      |    |             device, `sequential` on a core and `batched` on a GPU
      |
    session     this process's place in a Ray cluster: the one the user has, or one of its own that ends with it

Data and tasks are put into Ray's object store once, and so is each exchange's broadcast: every machine fetches it once,
and its actors read the same copy. Ray itself is imported when the first request comes.
"""

from accord.executors.ray.executor import OnRay

__all__ = ["OnRay"]
