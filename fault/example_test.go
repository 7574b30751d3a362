package fault_test

import (
	"fmt"

	"github.com/toolbus/toolbus/fault"
)

type apiError int

func (e apiError) Error() string   { return "the flight service is away" }
func (e apiError) HTTPStatus() int { return int(e) }

// An error of a tool's own is classified once; what it means for this tool, its manifest may change.
func ExampleOverrides_Judge() {
	f := fault.Of(apiError(503)).WithTool("flight_search")
	fmt.Println(f)

	var none fault.Overrides
	fmt.Println(none.Judge(f).Class)

	manifest := fault.Overrides{Codes: map[string]fault.Override{"503": {Class: fault.Permanent}}}
	v := manifest.Judge(f)
	fmt.Printf("%s, because %s\n", v.Class, v.Because)
	// Output:
	// flight_search: unavailable: the flight service is away
	// transient
	// permanent, because the manifest says code 503 is permanent
}
