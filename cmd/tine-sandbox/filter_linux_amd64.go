package main

import _ "embed"

//go:embed filter_amd64.json
var compiledFilter []byte
