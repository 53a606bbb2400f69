// Package aggregated serves API groups behind the API server's aggregation layer.
// It accepts only connections of the API server's front proxy, bounds their number,
// and identifies the user of each request. What a group serves is the group's own.
package aggregated
