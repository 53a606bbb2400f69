package push

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// ResultFile is what the kubelet reads as the container's termination message.
const ResultFile = "/dev/termination-log"

// maxReason bounds the message about a failure, in bytes. A registry wrote a part of it.
const maxReason = 1024

// Result is a termination message.
type Result struct {
	// Digest is that of the image which the registry now has.
	Digest string `json:"digest,omitempty"`
	// Size is the size of the layer, in bytes.
	Size int64 `json:"size,omitempty"`
	// Error says why there is no image.
	Error string `json:"error,omitempty"`
}

// ReadResult decodes a termination message. One that is none of this package's is an error of the
// container's.
func ReadResult(message string) Result {
	var r Result
	if err := json.Unmarshal([]byte(message), &r); err != nil {
		return Result{Error: fields.Clip(message, maxReason)}
	}
	r.Error = fields.Clip(r.Error, maxReason)
	return r
}

// write replaces the termination message.
func (r Result) write(file string) error {
	r.Error = fields.Clip(r.Error, maxReason)
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
