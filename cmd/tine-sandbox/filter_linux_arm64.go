package main

// compiledFilter is empty where nobody could compile and try one yet.
var compiledFilter []byte
