"""``python -m trt_agent_tools`` is the command ``trt-agent-tools``."""

from trt_agent_tools.cli.main import main

if __name__ == "__main__":
    main()
