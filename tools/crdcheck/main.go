// crdcheck holds the CRDs of deploy/crds to what a real API server does with them: it runs the server's own
// definition checks (structural schema, CEL compilation and cost budget), then feeds it the objects of a case
// file and compares acceptance and messages. It needs no cluster.
//
//	crdcheck <crd directory> <case file>
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	structurallisttype "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// testCase is one object and the complaints it must draw; none means it must be accepted unchanged.
type testCase struct {
	Name      string         `json:"name"`
	RefusedBy string         `json:"refusedBy"` // "schema" or "rule"; the Python tests know only schemas
	Errors    []string       `json:"errors"`
	Object    map[string]any `json:"object"`
}

type kind struct {
	schema     validation.SchemaValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: crdcheck <crd directory> <case file>")
		os.Exit(2)
	}
	kinds, err := loadDefinitions(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cases, err := loadCases(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	failed := 0
	for _, c := range cases {
		if problem := run(c, kinds); problem != "" {
			failed++
			fmt.Printf("FAIL %s: %s\n", c.Name, problem)
		}
	}
	fmt.Printf("%d definitions, %d cases, %d failed\n", len(kinds), len(cases), failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func loadDefinitions(directory string) (map[string]kind, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no CRDs in %s", directory)
	}
	kinds := map[string]kind{}
	for _, path := range paths {
		name, loaded, err := loadDefinition(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		kinds[name] = loaded
	}
	return kinds, nil
}

func loadDefinition(path string) (string, kind, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", kind{}, err
	}
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &external); err != nil {
		return "", kind{}, err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	var definition apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		&external, &definition, nil); err != nil {
		return "", kind{}, err
	}
	definition.Status.StoredVersions = []string{"v1alpha1"} // the server fills this in before it validates
	if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), &definition); len(errs) > 0 {
		return "", kind{}, errs.ToAggregate()
	}
	openAPI := definition.Spec.Validation.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(openAPI)
	if err != nil {
		return "", kind{}, err
	}
	schema, _, err := validation.NewSchemaValidator(openAPI)
	if err != nil {
		return "", kind{}, err
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return definition.Spec.Names.Kind, kind{schema: schema, structural: structural, rules: rules}, nil
}

func loadCases(path string) ([]testCase, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cases []testCase
	if err := utiljson.Unmarshal(data, &cases); err != nil { // as the server does: whole numbers stay integers
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cases, nil
}

// run returns what is wrong with the server's verdict, or nothing.
func run(c testCase, kinds map[string]kind) string {
	name, _ := c.Object["kind"].(string)
	k, known := kinds[name]
	if !known {
		return fmt.Sprintf("kind %q has no CRD", name)
	}
	before, _ := json.Marshal(c.Object)
	pruning.Prune(c.Object, k.structural, true)
	if after, _ := json.Marshal(c.Object); string(before) != string(after) {
		return fmt.Sprintf("the server would drop fields: %s became %s", before, after)
	}
	messages := verdict(c.Object, k)
	if len(c.Errors) == 0 && len(messages) > 0 {
		return "refused: " + strings.Join(messages, "; ")
	}
	if len(c.Errors) > 0 && len(messages) == 0 {
		return "accepted"
	}
	for _, wanted := range c.Errors {
		if !strings.Contains(strings.Join(messages, "\n"), wanted) {
			return fmt.Sprintf("no message contains %q: %s", wanted, strings.Join(messages, "; "))
		}
	}
	return ""
}

func verdict(object map[string]any, k kind) []string {
	errs := validation.ValidateCustomResource(nil, object, k.schema)
	errs = append(errs, structurallisttype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	ruleErrs, _ := k.rules.Validate(context.Background(), (*field.Path)(nil), k.structural, object, nil,
		celconfig.RuntimeCELCostBudget)
	var messages []string
	for _, err := range append(errs, ruleErrs...) {
		messages = append(messages, err.Error())
	}
	return messages
}
