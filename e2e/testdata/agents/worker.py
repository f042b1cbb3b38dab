"""Notes its prompt with a tool of the gateway and answers it."""

from contract import call, job, result, say

say("bind", executor_session_id="conversation-1")
say("tool", id="1", name="create_entities", arguments={"name": job["prompt"]})
call("mem", "create_entities", {"entities": [{"name": job["prompt"], "entityType": "prompt", "observations": []}]})
say("tool", id="1", done=True, text="noted")
say("text", text="I have noted it.")
say("usage", input_tokens=10, output_tokens=3)
result(
    "hello " + job["prompt"],
    {
        "mode": job["mode"],
        "executor_session_id": job.get("executor_session_id"),
        "noted": [e["name"] for e in call("mem", "read_graph", {})["entities"]],
        "depth": job["parameters"].get("depth"),
    },
)
