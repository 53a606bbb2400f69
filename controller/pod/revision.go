package pod

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// RevisionData encodes an object as the data of a ControllerRevision. Its keys are sorted, as the API server
// sorts them in an update: it takes another order for a change of the data, which it refuses, for example
// when a collector removes an owner.
func RevisionData(object any) (runtime.RawExtension, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return runtime.RawExtension{}, err
	}
	var sorted any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&sorted); err != nil {
		return runtime.RawExtension{}, err
	}
	text, err = json.Marshal(sorted)
	return runtime.RawExtension{Raw: text}, err
}
