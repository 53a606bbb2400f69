package instancetype

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// ConflictError says that a VM's types contradict its template. Only a change of one of them ends it.
type ConflictError struct{ problems field.ErrorList }

func (e *ConflictError) Error() string {
	var all []string
	for _, p := range e.problems {
		all = append(all, fields.Sentence(p))
	}
	return strings.Join(all, "; ")
}

// Expand is Apply to the template of a VM. The error is a *ConflictError.
func (t Types) Expand(template *kubevirt.VirtualMachineInstanceTemplateSpec) error {
	if problems := t.Apply(field.NewPath("spec", "template"), template); len(problems) > 0 {
		return &ConflictError{problems}
	}
	return nil
}
