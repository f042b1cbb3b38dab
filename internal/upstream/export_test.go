package upstream

var Cause = cause
