"""Networks: the intermediate representation, its passes, and models that run."""

from dlprim.graph.builder import Builder, ValueNeededError
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.interpret import interpret
from dlprim.graph.joint import gradient

__all__ = ["Builder", "Graph", "Node", "Value", "ValueNeededError", "gradient", "interpret"]
