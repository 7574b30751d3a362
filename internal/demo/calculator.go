package demo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
)

// Bounds of an expression.
const (
	maxExpression = 1000 // bytes
	maxNesting    = 64
)

type calculatorArgs struct {
	Expression string `json:"expression"`
}

type calculatorResult struct {
	Expression string  `json:"expression"`
	Value      float64 `json:"value"`
}

func calculate(_ context.Context, args calculatorArgs) (calculatorResult, error) {
	value, err := evaluate(args.Expression)
	if err != nil {
		return calculatorResult{}, err
	}
	return calculatorResult{args.Expression, value}, nil
}

// evaluate works out an expression of + - * / % ^, parentheses, constants and functions. Powers bind to the right and
// tighter than a sign before them: -2^2 is -4. A mistake in the expression is invalid_arguments; what has no value, such
// as 1/0, is failed.
func evaluate(expression string) (value float64, err error) {
	if len(expression) > maxExpression {
		return 0, invalid("/expression", fmt.Sprintf("at most %d bytes long", maxExpression), fmt.Sprintf("%d bytes", len(expression)))
	}
	e := &expr{text: expression}
	v, f := e.binary(0, 1)
	if f == nil && e.peek() != 0 {
		f = e.wrong("an operator or the end")
	}
	if f != nil {
		return 0, f
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fault.New(fault.Failed, "the value of %s is not a finite number", fault.Truncate(expression, 80))
	}
	return v, nil
}

// An expr is an expression and how far it was read.
type expr struct {
	text string
	at   int
}

// peek is the next byte that is no blank, 0 at the end.
func (e *expr) peek() byte {
	for e.at < len(e.text) && strings.IndexByte(" \t\r\n", e.text[e.at]) >= 0 {
		e.at++
	}
	if e.at == len(e.text) {
		return 0
	}
	return e.text[e.at]
}

// take goes on if the next byte is c.
func (e *expr) take(c byte) bool {
	if e.peek() != c {
		return false
	}
	e.at++
	return true
}

func (e *expr) wrong(expected string) *fault.Fault {
	got := "the end"
	if e.peek() != 0 {
		r, _ := utf8.DecodeRuneInString(e.text[e.at:])
		got = strconv.QuoteRune(r)
	}
	f := fault.New(fault.InvalidArguments, "expression: expected %s at byte %d, got %s", expected, e.at+1, got)
	f.Violations = []fault.Violation{{Pointer: "/expression", Expected: expected, Got: got}}
	return f
}

// powers are how tightly operators bind. A sign before a value binds like a product, a power tighter.
var powers = map[byte]int{'+': 1, '-': 1, '*': 2, '/': 2, '%': 2, '^': 3}

const signPower = 2

// binary reads a value and all operators after it that bind tighter than power.
func (e *expr) binary(power, depth int) (float64, *fault.Fault) {
	left, f := e.unary(depth)
	for f == nil {
		op := e.peek()
		p := powers[op]
		if p <= power {
			return left, nil
		}
		e.at++
		if op == '^' {
			p-- // to the right: 2^3^2 is 2^9
		}
		var right float64
		if right, f = e.binary(p, depth+1); f == nil {
			left, f = apply(op, left, right)
		}
	}
	return 0, f
}

func apply(op byte, a, b float64) (float64, *fault.Fault) {
	if (op == '/' || op == '%') && b == 0 {
		return 0, fault.New(fault.Failed, "division by zero")
	}
	switch op {
	case '+':
		return a + b, nil
	case '-':
		return a - b, nil
	case '*':
		return a * b, nil
	case '/':
		return a / b, nil
	case '%':
		return math.Mod(a, b), nil
	}
	return math.Pow(a, b), nil
}

func (e *expr) unary(depth int) (float64, *fault.Fault) {
	if depth > maxNesting {
		return 0, invalid("/expression", fmt.Sprintf("nested at most %d deep", maxNesting), "deeper")
	}
	switch {
	case e.take('-'):
		v, f := e.binary(signPower, depth+1)
		return -v, f
	case e.take('+'):
		return e.binary(signPower, depth+1)
	case e.take('('):
		v, f := e.binary(0, depth+1)
		if f == nil && !e.take(')') {
			f = e.wrong("an operator or )")
		}
		return v, f
	}
	switch c := e.peek(); {
	case digit(c) || c == '.':
		return e.number()
	case letter(c):
		return e.name(depth)
	}
	return 0, e.wrong("a number, a name, a sign or (")
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

func (e *expr) number() (float64, *fault.Fault) {
	start := e.at
	digits := func() {
		for e.at < len(e.text) && digit(e.text[e.at]) {
			e.at++
		}
	}
	digits()
	if e.at < len(e.text) && e.text[e.at] == '.' {
		e.at++
		digits()
	}
	if rest := e.text[e.at:]; rest != "" && rest[0]|0x20 == 'e' {
		n := 1
		if n < len(rest) && (rest[n] == '+' || rest[n] == '-') {
			n++
		}
		if n < len(rest) && digit(rest[n]) { // else it is a name, which is wrong here
			e.at += n
			digits()
		}
	}
	v, err := strconv.ParseFloat(e.text[start:e.at], 64)
	if err != nil {
		e.at = start
		return 0, e.wrong("a number that fits 64 bits")
	}
	return v, nil
}

// name reads a constant, or a function with its arguments.
func (e *expr) name(depth int) (float64, *fault.Fault) {
	start := e.at
	for e.at < len(e.text) && (letter(e.text[e.at]) || digit(e.text[e.at])) {
		e.at++
	}
	name := strings.ToLower(e.text[start:e.at])
	if v, ok := constants[name]; ok {
		return v, nil
	}
	fn, ok := functions[name]
	if !ok {
		e.at = start
		return 0, e.wrong("one of pi, e, " + strings.Join(functionNames(), ", "))
	}
	if !e.take('(') {
		return 0, e.wrong("( after " + name)
	}
	var args []float64
	for {
		v, f := e.binary(0, depth+1)
		if f != nil {
			return 0, f
		}
		args = append(args, v)
		if !e.take(',') {
			break
		}
	}
	if !e.take(')') {
		return 0, e.wrong("an operator, a comma or )")
	}
	if !fn.many && len(args) != 1 {
		return 0, invalid("/expression", name+" of one value", fmt.Sprintf("of %d", len(args)))
	}
	return fn.of(args), nil
}

var constants = map[string]float64{"pi": math.Pi, "e": math.E}

type function struct {
	many bool
	of   func([]float64) float64
}

func one(f func(float64) float64) function {
	return function{of: func(v []float64) float64 { return f(v[0]) }}
}

var functions = map[string]function{
	"sqrt": one(math.Sqrt), "abs": one(math.Abs), "ln": one(math.Log), "log10": one(math.Log10), "exp": one(math.Exp),
	"sin": one(math.Sin), "cos": one(math.Cos), "tan": one(math.Tan),
	"floor": one(math.Floor), "ceil": one(math.Ceil), "round": one(math.Round),
	"min": {many: true, of: slices.Min[[]float64]},
	"max": {many: true, of: slices.Max[[]float64]},
}

func functionNames() []string {
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
