package admission

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/shim/fields"
)

// maxProblems bounds the problems in one answer.
const maxProblems = 50

// refuse answers with every problem: as text for users, and as causes with paths
// for programs.
func (r *Review) refuse(problems field.ErrorList) admission.Response {
	slices.SortStableFunc(problems, func(a, b *field.Error) int { return strings.Compare(top(a), top(b)) })
	all := strconv.Itoa(len(problems))
	if len(problems) >= fields.MaxFound {
		all = "at least " + all
	}
	more := len(problems) > maxProblems
	problems = problems[:min(len(problems), maxProblems)]
	var lines []string
	var causes []metav1.StatusCause
	for _, p := range problems {
		line := fields.Sentence(p)
		lines = append(lines, line)
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseType(p.Type), Field: p.Field, Message: strings.TrimPrefix(line, p.Field+": "),
		})
	}
	if more {
		lines = append(lines, "…")
	}
	message := lines[0]
	if len(lines) > 1 {
		message = fmt.Sprintf("%s problems:\n  %s", all, strings.Join(lines, "\n  "))
	}
	if len(r.presets) > 0 {
		message += "\nthat is with the VirtualMachineInstancePresets " + strings.Join(r.presets, ", ")
	}
	response := admission.Denied("")
	response.Result = &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnprocessableEntity,
		Reason:  metav1.StatusReasonInvalid,
		Message: message,
		Details: &metav1.StatusDetails{
			Name: r.request.Name, Group: r.request.Kind.Group, Kind: r.request.Kind.Kind, Causes: causes,
		},
	}
	return response
}

// top returns a path's first part. It sorts metadata before spec.
func top(p *field.Error) string {
	end := strings.IndexAny(p.Field, ".[")
	if end < 0 {
		return p.Field
	}
	return p.Field[:end]
}
