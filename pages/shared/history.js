// Streamlit makes a step in the history of every parameter that a callback changes, of a control that appears only
// then after the run itself. All that follows from one act of the visitor shall be one step, so that Back undoes the
// whole of it; and Back from another page leads to the view that was left, not to one without its parameters
function oneStepPerAct() {
  const app = document.querySelector("[data-testid=stApp]"), push = window.history.pushState;
  if (!app || window.history.oneStepPerAct) return;
  const running = () => app.dataset.testScriptState !== "notRunning";
  let stepped = false;
  const act = () => { stepped &&= running(); };
  for (const kind of ["pointerdown", "click", "keydown"]) window.addEventListener(kind, act, true);
  window.addEventListener("popstate", () => { stepped = false; }, true);
  window.history.oneStepPerAct = true;
  window.history.pushState = (...entry) => {
    (stepped ? window.history.replaceState : push).apply(window.history, entry);
    stepped = true;
  };
}

export default oneStepPerAct;
