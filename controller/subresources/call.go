package subresources

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	vmis "github.com/nodevirt/nodevirt/controller/vmi"
)

// call is a request for a subresource.
type call struct {
	*http.Request
	w http.ResponseWriter

	caller                                          user.Info
	version, namespace, resource, name, subresource string
}

// maxBody bounds a request's body, in bytes: a manifest at most.
const maxBody = 512 << 10

// body decodes the request's; one that is empty leaves into as it is.
func (c *call) body(into any) error {
	text, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, maxBody))
	if err == nil && len(text) > 0 {
		err = decode.JSON(text, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("can not unmarshal Request body to struct, error: %v", err))
	}
	return nil
}

// reply writes an object as JSON.
func (c *call) reply(object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.replyJSON(text)
}

func (c *call) replyJSON(text []byte) error {
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(text) // who has gone doesn't hear it
	return nil
}

// accept says that something is under way.
func (c *call) accept() error {
	c.w.WriteHeader(http.StatusAccepted)
	return nil
}

func (c *call) group() schema.GroupResource {
	return schema.GroupResource{Group: kubevirt.GroupVersion.Group, Resource: c.resource}
}

// conflict: the object is not in the state for it.
func (c *call) conflict(format string, args ...any) error {
	return apierrors.NewConflict(c.group(), c.name, fmt.Errorf(format, args...))
}

// missing: there is no such thing here, and won't be.
func missing(sentence string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: sentence,
	}}
}

// unheard refuses a call about an instance whose node is not heard, or whose guest has left it unnoticed: it may run.
func (c *call) unheard(vmi *kubevirt.VirtualMachineInstance) error {
	if reason := vmi.Status.Reason; reason == vmis.ReasonGuestElsewhere || reason == vmis.ReasonGuestMissing {
		return c.conflict("the VM's guest may run elsewhere (%s): see condition Ready of VMI %s", reason, vmi.Name)
	}
	return c.conflict("VM is on node %s, which does not answer, and may run there: repair the node, or if it is off, taint it with "+
		"node.kubernetes.io/out-of-service", vmi.Status.NodeName)
}

// notRunning refuses a call that needs a guest. As with KubeVirt, the status of a console or a display of an instance
// that has not ended is 400: after no other do clients try again until their timeout.
func (c *call) notRunning(vmi *kubevirt.VirtualMachineInstance) error {
	const sentence = "VMI is not running"
	if (c.subresource == "console" || c.subresource == "vnc") && !vmi.IsFinal() {
		return apierrors.NewBadRequest(sentence)
	}
	return c.conflict(sentence)
}
