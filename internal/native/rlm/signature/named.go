package signature

// named are the signatures that are known by a name: questions about texts that are too
// long to be read at once.
var named = map[string]Signature{
	"deep_reasoning": {
		Inputs:  []Field{{Name: "context", Type: Type{Name: "str"}}, {Name: "query", Type: Type{Name: "str"}}},
		Outputs: []Field{{Name: "answer", Type: Type{Name: "str"}}},
		Strategy: `Work in three steps.
1. Look around: find out how long the context is, how it is built (headings, paragraphs, records), and where it can be split.
2. Select: split it there, drop what has nothing to do with the query by a search for words or patterns, and have llm_query_batch read what is left, part by part.
3. Put together: give the findings and the query to one llm_query, check its answer against the parts that it rests on, and submit it.`,
	},
	"deep_reasoning_multi": {
		Inputs:  []Field{{Name: "documents", Type: Type{Name: "Any"}}, {Name: "query", Type: Type{Name: "str"}}},
		Outputs: []Field{{Name: "answer", Type: Type{Name: "str"}}},
		Strategy: `Work in three steps.
1. Look around: documents is a list, a dict, or one text with all of them; find out how many there are, how long each is and how each can be split.
2. Select: of each document keep the parts that a search for words or patterns of the query finds, and have llm_query_batch read those, with the name or number of the document in each prompt.
3. Put together: give the findings of all documents and the query to one llm_query, say which document each statement comes from, and submit the answer.`,
	},
}
