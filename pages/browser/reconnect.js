// A page that lost its server asks for a run as soon as it is connected again.
//
// Streamlit asks for one only if the loss interrupted a run. The session on another replica is empty: without a run, the
// page would look alive until the next action, although its uploads and images are gone.
export default ({ setTriggerValue }) => {
  const app = document.querySelector("[data-testid=stApp]");
  let lost = false;
  const observer = new MutationObserver(() => {
    const connected = app.dataset.testConnectionState === "CONNECTED";
    if (lost && connected && app.dataset.testScriptState === "notRunning") setTriggerValue("reconnected", true);
    lost = !connected;
  });
  observer.observe(app, { attributes: true, attributeFilter: ["data-test-connection-state"] });
  return () => observer.disconnect();
};
