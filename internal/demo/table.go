package demo

import (
	"cmp"
	"context"
	_ "embed" // flights.csv
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
)

//go:embed flights.csv
var flightsCSV string

// A table has named columns of text or numbers, and does not change.
type table struct {
	columns []string
	rows    [][]any // string or float64
}

var flights = mustTable(flightsCSV)

// mustTable reads CSV with a header line. A column where all are numbers holds numbers.
func mustTable(text string) *table {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(records) < 2 {
		panic(fmt.Sprintf("the built-in table is broken: %d records, %v", len(records), err))
	}
	t := &table{columns: records[0]}
	for _, r := range records[1:] {
		row := make([]any, len(r))
		for i, s := range r {
			row[i] = s
			if n, err := strconv.ParseFloat(s, 64); err == nil {
				row[i] = n
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

type filter struct {
	Column string `json:"column"`
	Op     string `json:"op"`
	Value  any    `json:"value"`
}

type queryArgs struct {
	Where   []filter `json:"where"`
	OrderBy string   `json:"order_by"`
	Desc    bool     `json:"desc"`
	Limit   int      `json:"limit"`
	Columns []string `json:"columns"`
}

type queryResult struct {
	Columns []string         `json:"columns"`
	Rows    []map[string]any `json:"rows"`
	Total   int              `json:"total"` // that match, also beyond the limit
}

const (
	defaultRows = 20
	maxRows     = 100
)

func queryFlights(_ context.Context, args queryArgs) (queryResult, error) { return flights.query(args) }

func (t *table) query(args queryArgs) (queryResult, error) {
	wanted, err := t.wanted(args.Columns)
	if err != nil {
		return queryResult{}, err
	}
	matches, err := t.where(args.Where)
	if err != nil {
		return queryResult{}, err
	}
	if args.OrderBy != "" {
		i, err := t.column("/order_by", args.OrderBy)
		if err != nil {
			return queryResult{}, err
		}
		slices.SortStableFunc(matches, func(a, b []any) int {
			if args.Desc {
				a, b = b, a
			}
			return compare(a[i], b[i])
		})
	}

	out := queryResult{Rows: []map[string]any{}, Total: len(matches)}
	for _, i := range wanted {
		out.Columns = append(out.Columns, t.columns[i])
	}
	limit := min(args.Limit, maxRows)
	if limit <= 0 {
		limit = defaultRows
	}
	for _, row := range matches[:min(limit, len(matches))] {
		r := make(map[string]any, len(wanted))
		for _, i := range wanted {
			r[t.columns[i]] = row[i]
		}
		out.Rows = append(out.Rows, r)
	}
	return out, nil
}

// wanted is the columns by number; none named means all.
func (t *table) wanted(names []string) ([]int, error) {
	if len(names) == 0 {
		names = t.columns
	}
	var wanted []int
	for n, name := range names {
		i, err := t.column(fmt.Sprintf("/columns/%d", n), name)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, i)
	}
	return wanted, nil
}

func (t *table) column(pointer, name string) (int, error) {
	if i := slices.Index(t.columns, name); i >= 0 {
		return i, nil
	}
	return 0, invalid(pointer, "one of "+strings.Join(t.columns, ", "), strconv.Quote(name))
}

// where is the rows that fit every filter.
func (t *table) where(filters []filter) ([][]any, error) {
	rows := slices.Clone(t.rows)
	for n, f := range filters {
		pointer := fmt.Sprintf("/where/%d", n)
		i, err := t.column(pointer+"/column", f.Column)
		if err != nil {
			return nil, err
		}
		fits, err := f.test(pointer, t.rows[0][i])
		if err != nil {
			return nil, err
		}
		rows = slices.DeleteFunc(rows, func(row []any) bool { return !fits(row[i]) })
	}
	return rows, nil
}

// test is what the filter asks of a value; sample is one of its column.
func (f filter) test(pointer string, sample any) (func(any) bool, error) {
	if f.Op == "contains" {
		part, ok := f.Value.(string)
		if !ok {
			return nil, invalid(pointer+"/value", "text", show(f.Value))
		}
		part = strings.ToLower(part)
		return func(v any) bool { return strings.Contains(strings.ToLower(fmt.Sprint(v)), part) }, nil
	}
	holds, ok := comparisons[f.Op]
	if !ok {
		return nil, invalid(pointer+"/op", "one of =, !=, <, <=, >, >=, contains", strconv.Quote(f.Op))
	}
	want := f.Value
	if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", sample) {
		return nil, invalid(pointer+"/value", fmt.Sprintf("like the others of column %s, such as %s", f.Column, show(sample)), show(want))
	}
	return func(v any) bool { return holds(compare(v, want)) }, nil
}

var comparisons = map[string]func(int) bool{
	"=":  func(c int) bool { return c == 0 },
	"!=": func(c int) bool { return c != 0 },
	"<":  func(c int) bool { return c < 0 },
	"<=": func(c int) bool { return c <= 0 },
	">":  func(c int) bool { return c > 0 },
	">=": func(c int) bool { return c >= 0 },
}

// compare orders two values of one column. Text is compared without regard to case.
func compare(a, b any) int {
	x, isNumber := a.(float64)
	y, both := b.(float64)
	if isNumber && both {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(strings.ToLower(fmt.Sprint(a)), strings.ToLower(fmt.Sprint(b)))
}

// show is a value as JSON writes it, shortened.
func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%T", v)
	}
	return fault.Truncate(string(text), 60)
}
