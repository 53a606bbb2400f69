package kind

// CRD is what a CustomResourceDefinition has beside the schema, which comes from
// the kind's types. Names and columns are KubeVirt's, since users and programs
// depend on them.
type CRD struct {
	ShortNames []string `json:"shortNames,omitempty"`
	Columns    []Column `json:"columns,omitempty"`
	// ClusterScoped says that objects are in no namespace.
	ClusterScoped bool `json:"clusterScoped,omitempty"`
	// Status says that objects have the subresource status.
	Status bool `json:"status,omitempty"`
	// Scale is the subresource scale; nil for none.
	Scale *Scale `json:"scale,omitempty"`
	// Deprecated is the API server's warning about a kind that has a successor.
	Deprecated string `json:"deprecated,omitempty"`
}

// Column is one of the columns that kubectl get prints.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	JSONPath    string `json:"jsonPath"`
	Description string `json:"description,omitempty"`
	// Priority above 0 hides the column without -o wide.
	Priority int32 `json:"priority,omitempty"`
}

// Scale names the fields of the subresource scale by their paths.
type Scale struct {
	Spec     string `json:"specReplicasPath"`
	Status   string `json:"statusReplicasPath"`
	Selector string `json:"labelSelectorPath"`
}

// Age returns the column of an object's age.
func Age() Column { return Column{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"} }

// Condition returns a column with the status of a condition.
func Condition(name, condition string, priority int32) Column {
	return Column{
		Name: name, Type: "string", Priority: priority,
		JSONPath: ".status.conditions[?(@.type=='" + condition + "')].status",
	}
}

// Definition is what the generator of a CRD reads.
type Definition struct {
	Types   string `json:"types"`
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Older   string `json:"older,omitempty"`
	Details CRD    `json:"details"`
}

// Definition returns the kind's.
func (k Kind) Definition() Definition {
	return Definition{Types: k.Types(), Group: k.Version.Group, Kind: k.Name(), Older: k.Older, Details: k.CRD}
}

// Replicas is the CRD of a kind that keeps a number of objects, of the kind named, with their columns
// and a scale subresource.
func Replicas(of string, shortNames ...string) CRD {
	return CRD{
		ShortNames: shortNames,
		Columns: []Column{
			{
				Name: "Desired", Type: "integer", JSONPath: ".spec.replicas",
				Description: "Number of desired " + of,
			},
			{
				Name: "Current", Type: "integer", JSONPath: ".status.replicas",
				Description: "Number of managed and not final or deleted " + of,
			},
			{
				Name: "Ready", Type: "integer", JSONPath: ".status.readyReplicas",
				Description: "Number of managed " + of + " which are ready to receive traffic",
			},
			Age(),
		},
		Status: true,
		Scale:  &Scale{Spec: ".spec.replicas", Status: ".status.replicas", Selector: ".status.labelSelector"},
	}
}
