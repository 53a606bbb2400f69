// Package events sends the events of reconcilers to the API server.
//
// It owns their order, how many may wait, and what is remembered to count events that repeat: a bounded number
// of names and times, where client-go's recorder keeps every event for six minutes. It leaves to the reconcilers what
// they report.
package events
