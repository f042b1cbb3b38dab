package rollout

// The schemas of the tools about backends.
const (
	rkArgs = `"rk_session_id":{"type":"string","description":"Id of the session; default the one of the token, of the request, or the last one that this connection has opened"},` +
		`"session_id":{"type":"string","description":"The same"}`
	backendArg  = `"backend_name_ref":{"type":"string","description":"Name of the backend"}`
	instanceArg = `"instance_id":{"type":["string","integer"],"description":"Which of its instances, by id or by number from 0; default the first"}`

	initInput = `{"type":"object","properties":{` +
		`"backends":{"type":"array","minItems":1,"description":"What the session is made of","items":{"type":"object","properties":{` +
		backendArg + `,` +
		`"num_instances":{"type":"integer","minimum":1,"maximum":1000,"default":1,"description":"How many of it"},` +
		`"template_details":{"description":"What their state begins with: the name of a snapshot or a path under template_roots, or what the backend's orchestrator takes"},` +
		`"orchestration_preference":{"type":"string","description":"How they must be run, such as local_docker or remote_http_api; default as the backend is"}` +
		`},"required":["backend_name_ref"]}},` + keyArg + `},"required":["backends"]}`
	callInput = `{"type":"object","properties":{` + rkArgs + `,` + backendArg + `,` + instanceArg + `,` +
		`"tool_name":{"type":"string","description":"Name of the tool"},` +
		`"tool_args":{"type":"object","default":{},"description":"Arguments of the tool"}` +
		`},"required":["backend_name_ref","tool_name"]}`
	toolsInput   = `{"type":"object","properties":{` + rkArgs + `,` + backendArg + `,` + instanceArg + `},"required":["backend_name_ref"]}`
	cleanupInput = `{"type":"object","properties":{` + rkArgs + `}}`
	pingInput    = cleanupInput

	instanceOutput = `{"type":"object","properties":{"instance_id":` + text + `,"backend_name_ref":` + text + `,"orchestration_mode":` + text +
		`,"mcp_transport":{"type":"string","enum":["http","stdio"]},"mcp_endpoint_url":` + text +
		`,"internal_instance_details":{"type":"object"}},"required":["instance_id","backend_name_ref","orchestration_mode","mcp_transport","internal_instance_details"]}`
	initOutput = `{"type":"object","properties":{"session_id":` + text + `,"rk_session_id":` + text + `,"token":` + text +
		`,"initialized_backends":{"type":"array","items":{"type":"object","properties":{"backend_name_ref":` + text +
		`,"instances":{"type":"array","items":` + instanceOutput + `}},"required":["backend_name_ref","instances"]}}` +
		`},"required":["session_id","rk_session_id","token","initialized_backends"]}`
	resultOutput  = `{"type":"object"}` // it is the backend's
	toolsOutput   = `{"type":"object","properties":{"tools":{"type":"array","items":{"type":"object"}}},"required":["tools"]}`
	cleanupOutput = `{"type":"object","properties":{"status":{"type":"string","enum":["` + cleaned + `","` + notThere + `"]},"rk_session_id":` + text + `},"required":["status","rk_session_id"]}`
	pingOutput    = `{"type":"object","properties":{"reply":{"type":"string","enum":["pong"]},"session_id":` + text + `},"required":["reply","session_id"]}`
)
