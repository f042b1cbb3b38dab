# Stands in for Codex. The first argument says what it does; the rest is its command line.
case=$1; shift
case $* in
"exec --json --ignore-user-config --ignore-rules "*' mcp_servers={"files"={url="http://127.0.0.1:1/s/x/mcp/files",env_http_headers={"Authorization"="TINE_HEADER_1"}'*" -") ;;
*) echo "odd arguments: $*" >&2; exit 9 ;;
esac
prompt=$(cat)
[ "$prompt" = "What is six times seven?" ] && [ "$TINE_HEADER_1" = "Bearer tok_of_the_run" ] || { echo "odd input: $prompt" >&2; exit 9; }
begin() { echo '{"type":"thread.started","thread_id":"01a1f088-1d59-7480-93e5-dbb48112adc2"}'; echo '{"type":"turn.started"}'; }
say() { echo '{"type":"item.completed","item":{"id":"i9","type":"agent_message","text":"'"$1"'"}}'; }
end() { echo '{"type":"turn.completed","usage":{"input_tokens":20,"cached_input_tokens":0,"output_tokens":10}}'; }
case $case in
answers)
  begin
  say "Let me see."
  echo '{"type":"item.started","item":{"id":"i1","type":"mcp_tool_call","server":"files","tool":"multiply","arguments":{"a":6},"status":"in_progress"}}'
  echo '{"type":"item.completed","item":{"id":"i1","type":"mcp_tool_call","server":"files","tool":"multiply","result":{"content":[{"type":"text","text":"42"}]},"error":null,"status":"completed"}}'
  say forty-two; end ;;
silent) ;;
fails) begin; echo '{"type":"turn.failed","error":{"message":"no such thing"}}'; exit 1 ;;
killed) begin; kill -KILL $$ ;;
structured) begin; say '{\"sum\": 3}'; end ;;
misfit) begin; say three; end ;;
esac
