// Package vhostmd shows metrics of a node to its guests, on a disk that the vhostmd
// project defined and vm-dump-metrics reads.
//
// It owns the format, the file of the disk, and the node's own metrics. Which VM has
// such a disk, its metrics, and when they are written is package report's.
package vhostmd

import (
	"encoding/xml"
	"fmt"
	"strconv"
)

// Context says what a metric is about.
type Context string

// The contexts of metrics.
const (
	Host Context = "host"
	VM   Context = "vm"
)

// Metric is one value.
type Metric struct {
	Type    string  `xml:"type,attr"`
	Context Context `xml:"context,attr"`
	Unit    string  `xml:"unit,attr,omitempty"`
	Name    string  `xml:"name"`
	Value   string  `xml:"value"`
}

// Text returns a metric with a text.
func Text(of Context, name, value string) Metric {
	return Metric{Type: "string", Context: of, Name: name, Value: value}
}

// Number returns a metric with a whole number. Unit may be empty.
func Number(of Context, name, unit string, value uint64) Metric {
	return Metric{Type: "uint64", Context: of, Unit: unit, Name: name, Value: strconv.FormatUint(value, 10)}
}

// Seconds returns a metric with a duration in seconds.
func Seconds(of Context, name string, value float64) Metric {
	return Metric{Type: "real64", Context: of, Unit: "s", Name: name, Value: strconv.FormatFloat(value, 'f', 6, 64)}
}

// document returns metrics as XML.
func document(metrics []Metric) ([]byte, error) {
	text, err := xml.MarshalIndent(struct {
		XMLName xml.Name `xml:"metrics"`
		Metrics []Metric `xml:"metric"`
	}{Metrics: metrics}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode metrics: %w", err)
	}
	return append(text, '\n'), nil
}
