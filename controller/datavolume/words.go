package datavolume

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// says returns CDI's words about a DataVolume: the first error in its conditions and, if there is none, the first reason
// that is not merely the name of a step.
//
// CDI has no field for errors, and more than thirty reasons. It writes the reason of a failed pod into the condition
// Running, that of a PVC that it cannot create or use into Bound, and that of its last event into Ready.
func says(object *unstructured.Unstructured) (failure, words string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, kind := range []string{"Running", "Bound", "Ready"} {
		for _, c := range conditions {
			fields, _ := c.(map[string]any)
			if fields["type"] != kind || fields["status"] == "True" {
				continue
			}
			reason, _ := fields["reason"].(string)
			message, _ := fields["message"].(string)
			switch {
			case isError(reason):
				return sentence(reason, message), ""
			case words == "" && !isStep(reason):
				words = sentence(reason, message)
			}
		}
	}
	return "", words
}

// isError reports whether a reason says that something must change before CDI can fill the PVC.
func isError(reason string) bool {
	if slices.Contains([]string{"CloneWithoutSource", "IncompatiblePVC", "Unschedulable"}, reason) {
		return true
	}
	return slices.ContainsFunc([]string{"Err", "Fail", "Invalid", "Lost", "BackOff", "OOMKilled", "MarkedForDeletion"},
		func(part string) bool { return strings.Contains(reason, part) })
}

// isStep reports whether a reason says no more than the phase. A clone has those of two pods, with "and" between.
func isStep(reason string) bool {
	for part := range strings.SplitSeq(reason, " and ") {
		switch part {
		case "", "Pending", "Bound", "NotFound", "Completed", "Scheduled", "ContainerCreating", "PodInitializing",
			"TransferRunning", "Pod is running", "WaitForFirstConsumer", "PendingPopulation", "Succeeded":
			continue
		}
		if !strings.HasSuffix(part, "Scheduled") && !strings.HasSuffix(part, "InProgress") && !strings.HasSuffix(part, "Succeeded") {
			return false
		}
	}
	return true
}

// sentence puts a reason before its message, unless the reason says nothing.
func sentence(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "Error" || strings.Contains(message, reason):
		return message
	}
	return reason + ": " + message
}
