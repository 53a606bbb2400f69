package aggregated

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reply writes an object as JSON.
func Reply(w http.ResponseWriter, code int, object any) {
	text, err := json.Marshal(object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // a client that has gone needs no answer
}

// Refuse writes an error as the API server does: a Status, whose code is the
// error's own or 500.
func Refuse(w http.ResponseWriter, err error) {
	var status metav1.Status
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	} else {
		status = apierrors.NewInternalError(err).Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	Reply(w, int(status.Code), status)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	Refuse(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "",
		"the server could not find the requested resource: "+r.URL.Path, 0, true))
}
