package main

// compiledFilter is empty: no filter has been compiled and tried on arm64 yet.
var compiledFilter []byte
