package admission

import (
	"context"
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/controller/decode"
)

// PathEvict is the path of the webhook that decides on evictions of VMs' pods.
const PathEvict = "/apis/" + Group + "/" + Version + "/evict"

// Evictions returns why a pod must not be evicted; "" if it may be.
type Evictions func(ctx context.Context, pod types.NamespacedName, dryRun bool) (string, error)

// evict refuses as the API server refuses an eviction that a disruption budget forbids:
// the caller tries again.
func (w Webhooks) evict(ctx context.Context, request admission.Request) admission.Response {
	var eviction policyv1.Eviction
	if err := decode.JSON(request.Object.Raw, &eviction); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the eviction: %w", err))
	}
	dryRun := request.DryRun != nil && *request.DryRun
	if o := eviction.DeleteOptions; o != nil && len(o.DryRun) > 0 {
		dryRun = true
	}
	why, err := w.Evictions(ctx, types.NamespacedName{Namespace: request.Namespace, Name: request.Name}, dryRun)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case why == "":
		return admission.Allowed("")
	}
	response := admission.Denied("")
	response.Result = &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: why,
	}
	return response
}
