package gateway

// OrchestrationOperations names what the table of the orchestration API has, by
// method and path.
func OrchestrationOperations() map[string]string {
	out := make(map[string]string)
	for _, rt := range orchestrationRoutes() {
		out[rt.method+" "+rt.pattern] = rt.name
	}
	return out
}
