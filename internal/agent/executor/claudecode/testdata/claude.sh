# Stands in for Claude Code. The first argument says what it does; the rest is its command line.
case=$1; shift
case $* in
*"--print --output-format stream-json --verbose --strict-mcp-config --mcp-config "*) ;;
*) echo "odd arguments: $*" >&2; exit 9 ;;
esac
prompt=$(cat)
[ "$prompt" = "What is six times seven?" ] || { echo "odd input: $prompt" >&2; exit 9; }
s='"session_id":"6f7d3c1e-3b1a-4a2b-9c1d-000000000001"'
init() { echo '{"type":"system","subtype":"init",'"$s"',"mcp_servers":[{"name":"files","status":"failed"}]}'; }
end() { echo '{"type":"result","subtype":"success","is_error":false,'"$s"',"result":"'"$1"'","structured_output":'"$2"',"total_cost_usd":0.5,"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":3},"model_usage_since_last_result":{"m":{"costUSD":0.2}}}'; }
case $case in
answers)
  init
  echo '{"type":"assistant",'"$s"',"message":{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Let me see."},{"type":"tool_use","id":"t1","name":"mcp__files__multiply","input":{"a":6}}]}}'
  echo '{"type":"user",'"$s"',"message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"42"},{"type":"text","text":"exactly"}]}]}}'
  echo 'a warning'
  end forty-two null ;;
silent) ;;
fails) init; echo "no such thing" >&2; exit 3 ;;
killed) init; kill -KILL $$ ;;
structured) end '{\"sum\":3}' '{"sum": 3}' ;;
misfit) end three null ;;
esac
