"""The child process of one build: the only room that imports TensorRT.

Started as ``python -m trt_agent_tools.worker``, never imported by another room, and knows
`trt_agent_tools.model` alone. It emits events and obeys orders; it judges no progress.
"""
