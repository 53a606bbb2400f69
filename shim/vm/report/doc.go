// Package report says what is known of VM containers: to CRI as statuses, lists
// and stats, to Prometheus as metrics, and to the API server as pod conditions.
//
// It answers from records and counters, so that a libvirtd that is away or hangs
// blinds no caller. It changes no VM.
package report
