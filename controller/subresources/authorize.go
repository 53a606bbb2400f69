package subresources

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
)

// attributes are what a call is to the authorizer, which are KubeVirt's: the verb is that of the HTTP
// method, and of a longer path the first word behind the object's name is the subresource.
func (c *call) attributes() *authorizationv1.ResourceAttributes {
	subresource, _, _ := strings.Cut(c.subresource, "/")
	return &authorizationv1.ResourceAttributes{
		Namespace: c.namespace, Verb: verbs[c.Method], Group: Group, Version: c.version,
		Resource: c.resource, Subresource: subresource, Name: c.name,
	}
}

var verbs = map[string]string{http.MethodGet: "get", http.MethodPut: "update", http.MethodPost: "create"}

// authorizer asks the API server what callers may do.
type authorizer struct{ cluster kubernetes.Interface }

// authorize asks the API server whether the caller may.
func (z *authorizer) authorize(ctx context.Context, c *call) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: c.attributes(),
		User:               c.caller.GetName(), UID: c.caller.GetUID(), Groups: c.caller.GetGroups(), Extra: extra(c.caller),
	}}
	answer, err := z.cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("ask what %s may do: %w", c.caller.GetName(), err))
	}
	if !answer.Status.Allowed {
		a := review.Spec.ResourceAttributes
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		return apierrors.NewForbidden(schema.GroupResource{Group: Group, Resource: resource}, c.name,
			fmt.Errorf("user %q cannot %s resource %q in API group %q in the namespace %q",
				c.caller.GetName(), a.Verb, resource, Group, c.namespace))
	}
	return nil
}

func extra(u user.Info) map[string]authorizationv1.ExtraValue {
	all := map[string]authorizationv1.ExtraValue{}
	for key, values := range u.GetExtra() {
		all[key] = values
	}
	return all
}
